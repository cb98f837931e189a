"""DeBERTa v2 and v3, LTG-BERT: contents and distances meet in every layer's scores."""
