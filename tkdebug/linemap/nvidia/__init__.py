"""NVIDIA's formats: cubins, their line tables and SASS, and GPU core dumps; read, never written."""
