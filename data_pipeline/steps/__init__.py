"""The steps of a build, each of which knows from the disk what is done."""
