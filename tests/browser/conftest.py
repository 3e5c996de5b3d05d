"""The browser of these tests."""

from chromium import browser as browser
from chromium import opened as opened
