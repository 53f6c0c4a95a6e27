"""What a recipe can name: one table a choice, with all that is known of each entry. No torch."""
