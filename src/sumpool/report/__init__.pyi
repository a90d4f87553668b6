from .run.files import Run as Run
from .run.files import read_run as read_run
from .run.gallery import Gallery as Gallery
from .run.gallery_files import read_gallery as read_gallery
from .run.gallery_files import write_gallery as write_gallery
from .tables import Table as Table
from .tables import mean_and_spread as mean_and_spread
