"""What may happen and what may be seen: classes, rules, redaction."""
