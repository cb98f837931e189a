"""DeBERTa v2 and v3, LTG-BERT, GPT-BERT: contents and distances meet in every layer's scores."""
