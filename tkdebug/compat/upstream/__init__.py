"""An installed Triton as the compiler: what it compiles and launches, as tkdebug records it."""
