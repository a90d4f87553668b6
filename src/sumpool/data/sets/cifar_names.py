"""Names of the CIFAR-100 classes and superclasses [cifar], and the superclass of each class."""

from __future__ import annotations

#: The classes of each superclass; superclasses ordered by number, classes by name.
_MEMBERS = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
_COARSE = {
    fine: coarse for coarse, members in enumerate(_MEMBERS.values()) for fine in members.split()
}

#: The 20 superclasses, ordered by number.
COARSE_NAMES: tuple[str, ...] = tuple(_MEMBERS)
#: The 100 classes, ordered by number, which is also alphabetical order.
FINE_NAMES: tuple[str, ...] = tuple(sorted(_COARSE))
#: The superclass number of each class.
COARSE_OF_FINE: tuple[int, ...] = tuple(_COARSE[name] for name in FINE_NAMES)
