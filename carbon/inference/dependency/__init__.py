"""Nucleotide dependency maps: how a substitution at one base changes the odds of the others."""

from carbon.inference.dependency.maps import (
    DependencyMap,
    DependencyMethod,
    dependency_map,
    dependency_method_for,
)

__all__ = ["DependencyMap", "DependencyMethod", "dependency_map", "dependency_method_for"]
