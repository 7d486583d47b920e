"""What a source is, what is in it, and the command that converts it. Nothing of it is run.

The functions that read, choose and refuse are those of a conversion, so that what is said here holds there.
"""
