"""Jinja templates that strangers wrote, evaluated at a price, with an eye on whose text is whose.

    source --Jinja's parser--> tree --Renderer--> Text: characters, and of each where it came from

Templates are walked, not run: every operation is one of this package's own, pays a Meter for its
time and its memory, and keeps the origin of every character. Why: decision 0005 in the docs.
"""
