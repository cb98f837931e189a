"""Low-rank adapters: their options, their modules, and the files of peft."""
