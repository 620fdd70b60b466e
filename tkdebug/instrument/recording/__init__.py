"""What is recorded beside events: times on the GPU, stalls, clocks, output, ends of children."""
