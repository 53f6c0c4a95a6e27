"""What `hostile.py` does to files, where it puts them, and how it judges what happened."""
