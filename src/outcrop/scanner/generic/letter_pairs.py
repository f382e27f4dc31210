"""What each letter costs after another in words, in eighths of a bit: written by tools/letter-pairs from the words of this tree.

A row is the letter before (the last row: the beginning of a word), a column the letter after (the last: its end). A
cost is a character: its code less that of "0".
"""

PAIRS = (
    "hTNRrfX~U~`JTJ~U~JNG]dfo^qY",
    "J_TeEhygN[uHamJc~TWrP~~~YrJ",
    "J}``Ix}G]~OSl~Bp~QgJY~y~q~Q",
    "Qgx[Cng~Ky~`ltUq}]Rp^y|{b~:",
    "TnTJ_]dzl~}XZLs\\oGHR{_jXj~C",
    "LogjKM^~B~zTolFv~SZUR~z~n~J",
    "S~iwBp_RJ}r^nWWh~PSdXp~~}p>",
    "Fkyu@~}tJ}ybd~Ep~ZeVY~~~bvE",
    "]_RTU]T~nqoPV@M[~XNI}Y}d~e_",
    "MvviEii]TvNvivF_ivHiGv\\vvcL",
    "czh_=p~zH~t[nXigzzHcctizz~?",
    "LtrUCix~G}jKjuHi~oUYYgy~Z~F",
    "DY~o@~x{K{d`XcLJl~Yg_{~~ktK",
    "QuRLL^HyV~aeoZSf~oMH`dw~h~E",
    "a]UTne\\~b~^RPCWS|FSUM]Sm~tY",
    "Ep~iGpa_R~tKv}LUkIVQ[~oza~J",
    "VwwdjjwjjwwIwwdVjQYd7wUwjwP",
    "Lp`Z@m_~M|ab\\_Mg~]QT\\ct~X~E",
    "Z~VrHwxWR~ddnyX\\otRGZ~d~d~;",
    "Mr[iCrsNI~~cjuRh~OPZ^zl|^}B",
    "_ZZYQd^~Y~~NPChQ~GLGli~{~~j",
    "Fmt~7~pzG~~mmgZz~zt~t~`t~zP",
    "Ht|bHl~HJ~|_|PKo~ORe|~e`~~G",
    "K]M\\KW~oPuuo`oiLu~cD~~uXVuC",
    "jcfkXk~{d{~d[VZM~hLOsq`{g]8",
    "Kv`]>jvvHvd\\Y`Ojvjjv^vvvaVC",
    "OULSSR[XWhfTSXXOkOIQYcWmps~",
)
