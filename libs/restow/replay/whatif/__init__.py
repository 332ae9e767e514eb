"""What would have happened: the recorded arrivals, ends, nodes and users' actions of a log drive the real deciders on virtual time."""
