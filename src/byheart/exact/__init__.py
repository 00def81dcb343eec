"""The big-integer Transformer of Kajitsuka and Sato (2025): blocks of integers as data."""
