"""What a process asks of the machine that it runs on.

findings.py         what a check of the machine found
folder_security.py  who else can read and change a folder
helm_program.py     whether there is Helm
service_manager.py  tells systemd that the process is ready
"""
