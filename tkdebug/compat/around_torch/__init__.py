"""What is put around functions of torch while a script runs, to see what it does with tensors."""
