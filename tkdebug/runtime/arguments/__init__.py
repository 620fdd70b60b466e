"""Arguments of a launch: binding, specialisation keys, descriptors, where tensors are."""
