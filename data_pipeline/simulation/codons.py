"""Codon usage of a real organism, for the simulated one."""

# Drosophila melanogaster (taxon 7227), share of each codon among those of its amino acid.
# Source: Codon Usage Database, Kazusa DNA Research Institute (Nakamura, Gojobori and Ikemura 2000).
FLY_CODON_USAGE: dict[str, dict[str, float]] = {
    "*": {"TAA": 0.41, "TAG": 0.33, "TGA": 0.25},
    "A": {"GCA": 0.17, "GCC": 0.45, "GCG": 0.19, "GCT": 0.19},
    "C": {"TGC": 0.71, "TGT": 0.29},
    "D": {"GAC": 0.47, "GAT": 0.53},
    "E": {"GAA": 0.33, "GAG": 0.67},
    "F": {"TTC": 0.62, "TTT": 0.38},
    "G": {"GGA": 0.29, "GGC": 0.43, "GGG": 0.07, "GGT": 0.21},
    "H": {"CAC": 0.60, "CAT": 0.40},
    "I": {"ATA": 0.19, "ATC": 0.47, "ATT": 0.34},
    "K": {"AAA": 0.30, "AAG": 0.70},
    "L": {"CTA": 0.09, "CTC": 0.15, "CTG": 0.43, "CTT": 0.10, "TTA": 0.05, "TTG": 0.18},
    "M": {"ATG": 1.00},
    "N": {"AAC": 0.56, "AAT": 0.44},
    "P": {"CCA": 0.25, "CCC": 0.33, "CCG": 0.29, "CCT": 0.13},
    "Q": {"CAA": 0.30, "CAG": 0.70},
    "R": {"AGA": 0.09, "AGG": 0.11, "CGA": 0.15, "CGC": 0.33, "CGG": 0.15, "CGT": 0.16},
    "S": {"AGC": 0.25, "AGT": 0.14, "TCA": 0.09, "TCC": 0.24, "TCG": 0.20, "TCT": 0.08},
    "T": {"ACA": 0.20, "ACC": 0.38, "ACG": 0.26, "ACT": 0.17},
    "V": {"GTA": 0.11, "GTC": 0.24, "GTG": 0.47, "GTT": 0.19},
    "W": {"TGG": 1.00},
    "Y": {"TAC": 0.63, "TAT": 0.37},
}
