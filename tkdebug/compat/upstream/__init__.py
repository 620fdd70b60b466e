"""An installed Triton as the compiler: its compiles and launches, as tkdebug records them."""
