-- While this session waits, the server looks whether its client is still there. Not every system can.
SET client_connection_check_interval = '1s'
