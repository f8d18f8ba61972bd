package files

func memoryChild() {}

