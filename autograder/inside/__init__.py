"""What runs inside the sandbox, next to a student's code: nothing here is trusted, and nothing here knows an answer.

`wire` is the language that the two sides speak, `zygote` the warm process that forks one child a submission, `confine` what
shuts that child in, `notebook` what runs cells there, `line` and `ranks` what carries a rank's messages out, and `library`
what is left of mlsyslab.
"""
