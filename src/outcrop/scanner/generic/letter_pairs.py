"""Bits that each letter costs after another letter in words. Written by tools/letter-pairs.

A row is the first letter of a pair; the last row is the beginning of a word. A column is the second letter;
the last column is the end of a word. A character is a cost in eighths of a bit: its code minus that of "0".
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
