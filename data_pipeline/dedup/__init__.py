"""Records that say the same as another, or as what models are measured on."""
