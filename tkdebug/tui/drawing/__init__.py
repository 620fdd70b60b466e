"""How things are drawn: colours, marks, and text of any origin made safe."""
