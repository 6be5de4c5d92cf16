"""The paper's three networks: what is promised of each of them is not promised of every network of the zoo."""

PAPERS = ("cnn7", "vgg11", "resnet18")
