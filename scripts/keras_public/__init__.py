"""Small models as public repositories and courses have them: files and answers of the Keras of their time."""
