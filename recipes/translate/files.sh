# For recipes of translation, which have sourced ../stages.sh. From the caller: SETTING, RUN and DATA.

multi30k_or_letters() { # files=(--train SOURCE TARGET ...): Multi30k in DATA, or letters to reverse if SETTING is tiny
  if [ "$SETTING" = tiny ] && [ -z "${DATA:-}" ]; then
    local letters=$RUN/letters
    once "$RUN/.made-up" python3 "$recipes/toy_copy/make_data.py" "$letters" reverse
    files=(--train "$letters"/train.{source,target}.txt --valid "$letters"/valid.{source,target}.txt
      --test "$letters"/test.{source,target}.txt)
  else
    DATA=${DATA:-$recipes/../../shared/data/multi30k/task1}
    given DATA "$DATA"/{train,val,test_2016_flickr}.{en,de}.gz
    files=(--train "$DATA"/train.{en,de}.gz --valid "$DATA"/val.{en,de}.gz --test "$DATA"/test_2016_flickr.{en,de}.gz)
  fi
}
