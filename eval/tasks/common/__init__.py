"""Parts that several tasks share: tables, references, coding exons, pairs, variants, recovery."""
