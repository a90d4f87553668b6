"""Operating system facilities: files, locks, processes, signals, cores, memory."""
