"""Source localization: in which community did a diffused signal start? The paper's Table 1."""
