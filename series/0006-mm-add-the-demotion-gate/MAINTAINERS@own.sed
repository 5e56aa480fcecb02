# unless: ^F:\tmm/memory-tiers\.c$
0,/^\(DEM[P-Z]\|DE[N-Z]\|D[F-Z]\)/{
//i\
@include MAINTAINERS
}
