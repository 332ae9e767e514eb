"""The main job, end to end: fill a GPU cluster until it is fragmented, defragment it, prove that nothing was lost."""
