"""hpcddm: decentralised diffusion models as Slurm batch jobs."""

__version__ = "0.1.0"
