"""The home pane: the annotated source of a kernel, and what is known of the line at the cursor."""
