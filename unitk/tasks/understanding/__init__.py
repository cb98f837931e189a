"""Fine-tuning for understanding: classes, numbers and tags, spans in passages, choices, cloze."""
