"""Source localization: in which community did a diffusion start, asked at one node."""
