"""Drawing: colours, marks, and text of any origin made safe."""
