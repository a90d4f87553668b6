from .duplicates import Duplicates as Duplicates
from .explain import Explanation as Explanation
from .index import Index as Index
from .images import Match as Match
from .threshold import Threshold as Threshold
from .update import Changes as Changes
