"""What the machine offers: files, locks, processes, cores, memory."""
