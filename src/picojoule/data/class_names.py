"""Names of the classes by class number, in the words of the data sets' makers."""

from __future__ import annotations

# github.com/zalandoresearch/fashion-mnist, "Labels"
FASHION_MNIST_NAMES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)

# batches.meta.txt in the official archive
CIFAR_10_NAMES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())

# fine_label_names.txt in the official archive
CIFAR_100_NAMES = tuple(
    name.replace("_", " ")
    for name in """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
    bowl boy bridge bus butterfly camel can castle caterpillar cattle
    chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()
)

DIGITS_NAMES = tuple("zero one two three four five six seven eight nine".split())

BRAILLE_NAMES = tuple("A B C D E F G H I J K L M N O P Q R S Space T U V W X Y Z".split())
"""In the order of the labels, which is that of the sorted names."""
