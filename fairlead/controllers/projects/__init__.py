"""The project controller (`projects.py`): namespace, status with quota usage, ordered deletion of the content."""
