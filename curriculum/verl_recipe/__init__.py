"""Training the judge with verl on a cluster: our episode, our reward and our filter, verl's everything else."""
