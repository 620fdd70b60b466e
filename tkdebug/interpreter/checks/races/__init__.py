"""`--check race`: what programs access is kept, and compared by what happens before what."""
