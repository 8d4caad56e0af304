from rl_influence.cli import main

main()
