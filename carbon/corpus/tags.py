"""The metadata tags of a record, by the codes of the released corpus."""

SPECIES_TAG_OF = {
    "mam": "<mammalian_species>",
    "vrt": "<vertebrate_non_mammalian_species>",
    "inv": "<invertebrate_species>",
    "pln": "<plant_species>",
    "fng": "<fungi_species>",
    "prt": "<protozoa_species>",
    "pro": "<prokaryote_species>",
}
GENE_TAG_OF = {
    "cds": "<protein_coding_region>",
    "pseudo": "<pseudo_gene>",
    "tRNA": "<transfer_rna>",
    "tmRNA": "<transfer_messenger_rna>",
    "ncRNA": "<non_coding_rna>",
    "misc_RNA": "<miscellaneous_rna>",
    "rRNA": "<ribosomal_rna>",
}
