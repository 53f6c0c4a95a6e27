"""Every base and every SNV of a region: values, files, pictures."""
