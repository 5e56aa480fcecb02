0,/^\(DEM[P-Z]\|DE[N-Z]\|D[F-Z]\)/{
//i\
@include MAINTAINERS
}
