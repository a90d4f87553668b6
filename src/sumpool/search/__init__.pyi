from .assemble import Changes as Changes
from .duplicates import Duplicates as Duplicates
from .explain import Explanation as Explanation
from .images import Match as Match
from .index import Index as Index
from .threshold import Threshold as Threshold
