"""All poolings on collages."""
